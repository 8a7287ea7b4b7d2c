"""`stoker size`: how large a paged KV cache should be for the requests that were seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds `size`."""
    app.command("size")(size)


def size(
    events: Annotated[Path, typer.Option(help="RequestEvents as JSON lines; .gz is fine.")],
    block_tokens: Annotated[int, typer.Option(help="Tokens of a KV block.", min=1, max=65_536)] = 64,
    max_seq: Annotated[int | None, typer.Option(help="Longest sequence, instead of what was seen.", min=1)] = None,
    max_batch: Annotated[int | None, typer.Option(help="Sequences at a time, instead of what was seen.", min=1)] = None,
    kv_bytes_per_token: Annotated[
        int | None, typer.Option(help="KV of a token over all layers, for sizes in bytes.", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Also write it as JSON.")] = None,
) -> None:
    """Advise on a paged KV cache from observed lengths, and translate it for today's TensorRT-LLM."""
    from stoker.size.advice import advise, keys, server_options
    from stoker.size.lengths import read_lengths

    lengths = read_lengths(events)
    found = advise(lengths, block_tokens, max_seq, max_batch)
    told = keys(found.size, kv_bytes_per_token)
    typer.echo(
        f"{len(lengths.requests)} requests: half within {lengths.quantile_tokens(0.5)} tokens, 99 % within "
        f"{lengths.quantile_tokens(0.99)}, the longest {lengths.longest_tokens}; at most {lengths.most_at_once} at once"
    )
    for key in told:
        mark = "" if key.accepted else "not accepted by TensorRT-LLM today"
        typer.echo(f"  {key.name:<22}{key.value:>8}  {mark}" + (f": {key.today}" if key.today else ""))
    typer.echo(
        f"with these: {found.too_long} requests too long, {found.refused} refused at the cap, the reserve grew "
        f"{found.grown} times, at most {found.most_blocks} of {found.size.host_max_num_blocks} blocks held"
    )
    options = server_options(found.size, kv_bytes_per_token)
    typer.echo("as a file for trtllm-serve --config (older releases: --extra_llm_api_options):\n" + options)
    if lengths.unreadable:
        typer.echo(f"{lengths.unreadable} lines are no RequestEvents", err=True)
    if out is not None:
        document = {
            "keys": [key._asdict() for key in told],
            "server_options": options,
            "requests": len(lengths.requests),
            "too_long": found.too_long,
            "refused": found.refused,
            "grown": found.grown,
            "most_blocks": found.most_blocks,
        }
        out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
