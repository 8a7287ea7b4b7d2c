"""`stoker announce prompt|prompts|model|adapter|event`: tell the planners of a change before it takes effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.announcing import change_of, messages_of, segments_of, store_texts, tell, text_of
from stoker.commands.policy import Bootstrap, Config

if TYPE_CHECKING:
    from stoker.config import Settings as Tree

Name = Annotated[str, typer.Argument(help="Name of what changes.")]
Scope = Annotated[str, typer.Option(help="Scope (tenant) that it is for.")]
Pool = Annotated[str, typer.Option(help="GPU pool that serves it.")]
Version = Annotated[str, typer.Option(help="Version that takes effect.")]
Replaces = Annotated[str | None, typer.Option(help="What ends then: the old model, template or version.")]
At = Annotated[str, typer.Option(help="When: now, +90s, +10m, +2h, or a time such as 2026-12-01T09:00:00Z.")]
Withdraw = Annotated[bool, typer.Option("--withdraw", help="Take the announcement back.")]


def register(app: typer.Typer) -> None:
    """Adds the `announce` group."""
    group = typer.Typer(help="Tell the planners of a change before it takes effect.", no_args_is_help=True)
    for command in (prompt, prompts, model, adapter, event):
        group.command(command.__name__)(command)
    app.add_typer(group, name="announce")


def prompt(
    name: Name,
    scope: Scope,
    pool: Pool,
    model: Annotated[str, typer.Option(help="Model that it is written for.")],
    messages: Annotated[Path, typer.Option(help="JSON list of chat messages: what its requests begin with.")],
    version: Version = "1",
    replaces: Replaces = None,
    template_sha: Annotated[str, typer.Option(help="Hash of the chat template, as requests name it.")] = "",
    template_only: Annotated[bool, typer.Option(help="Warm only what stands before the first user message.")] = False,
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new prompt: its prefix is warm on every replica when the first request comes."""
    from schemas import Render

    tree = _tree(config, bootstrap)
    texts = messages_of(messages)
    segments = segments_of(texts, model, template_sha)
    change = change_of(
        "prompt",
        name,
        scope,
        pool,
        version,
        at,
        replaces=replaces,
        model=model,
        segments=segments,
        render=Render(template_sha=template_sha),
        strategy="template" if template_only else None,
    )
    if not withdraw:
        store_texts(tree.redis, scope, segments, texts, change.at_ms)
    typer.echo(tell(tree.kafka, change, withdraw))


def prompts(
    file: Annotated[Path, typer.Argument(help='JSON lines: {"id": "faq@3", "content": "…", "tags": ["…"]}.')],
    scope: Scope,
    pool: Pool,
    model: Annotated[str, typer.Option(help="Model that they are written for.")],
    template_sha: Annotated[str, typer.Option(help="Hash of the chat template, as requests name it.")] = "",
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A file of managed prompts joins the pool of prompts that are warmed by their hotness."""
    from connectors.prompt_file import read_prompts
    from schemas import Render

    tree = _tree(config, bootstrap)
    changes = []
    for told in list(read_prompts(file)):
        texts = [(str(message.role), message.content) for message in told.messages]
        segments = segments_of(texts, model, template_sha)
        change = change_of(
            "prompt",
            told.name,
            scope,
            pool,
            told.version,
            at,
            replaces=told.replaces,
            model=model,
            segments=segments,
            render=Render(template_sha=template_sha),
            tags=told.tags,
        )
        changes.append((change, segments, texts))
    for change, segments, texts in changes:  # all of them can be announced: now they are
        if not withdraw:
            store_texts(tree.redis, scope, segments, texts, change.at_ms)
        typer.echo(tell(tree.kafka, change, withdraw))


def model(
    name: Name,
    scope: Scope,
    pool: Pool,
    version: Version = "1",
    replaces: Replaces = None,
    kind: Annotated[str, typer.Option(help="What changes: model, tokenizer or template.")] = "model",
    of_model: Annotated[
        str | None, typer.Option("--model", help="Model whose tokenizer it is, or the only one whose template it is.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="full_model also wakes and probes sleeping replicas.")] = None,
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new model, tokenizer or template: what the old one rendered is not warmed any more, stale answers go.

    A model or tokenizer is probed. Where it takes effect under the model's name of before (NAME equal to --replaces, or
    a tokenizer), what is asked for afterwards is warmed again. The prefixes of a new template are warmed once they are
    asked for, or before if `announce prompt` tells them.
    """
    from schemas import BrokenConfiguration

    if kind not in ("model", "tokenizer", "template"):
        raise BrokenConfiguration(f"--kind {kind}: it is one of model, tokenizer, template")
    if kind == "tokenizer" and of_model is None:
        raise BrokenConfiguration("--kind tokenizer: name the model that it belongs to with --model")
    if kind == "model" and of_model not in (None, name):
        raise BrokenConfiguration(f"--model {of_model}: the new model is called {name}; leave --model out")
    if strategy not in (None, "full_model") or (strategy and kind == "template"):
        raise BrokenConfiguration(f"--strategy {strategy}: of a model or tokenizer it is full_model")
    change = change_of(
        kind,
        name,
        scope,
        pool,
        version,
        at,
        replaces=replaces,
        model=name if kind == "model" else of_model,
        strategy=strategy,
    )
    typer.echo(tell(_tree(config, bootstrap).kafka, change, withdraw))


def adapter(
    name: Name,
    scope: Scope,
    pool: Pool,
    version: Version,
    source: Annotated[str, typer.Option(help="Where replicas read it: a path or an id that the engine resolves.")],
    rank: Annotated[int | None, typer.Option(help="Rank, compared before it is loaded.", min=1, max=4096)] = None,
    alpha: Annotated[float | None, typer.Option(help="lora_alpha, compared likewise.")] = None,
    dropout: Annotated[float | None, typer.Option(help="lora_dropout, compared likewise.")] = None,
    target_modules: Annotated[
        str, typer.Option(help="Modules that it changes, compared likewise: q_proj,v_proj,…")
    ] = "",
    sha256: Annotated[str | None, typer.Option(help="Digest of the weights, compared before they are loaded.")] = None,
    replaces: Replaces = None,
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new version of an adapter: loaded where it will be asked for, checked before."""
    change = change_of(
        "adapter",
        name,
        scope,
        pool,
        version,
        at,
        replaces=replaces,
        source=source,
        rank=rank,
        alpha=alpha,
        dropout=dropout,
        target_modules=tuple(module.strip() for module in target_modules.split(",") if module.strip()),
        sha256=sha256,
    )
    typer.echo(tell(_tree(config, bootstrap).kafka, change, withdraw))


def event(
    name: Name,
    scope: Scope,
    keys: Annotated[Path, typer.Option(help="File with one key a line, most wanted first.")],
    loader: Annotated[str, typer.Option(help="Loader of the executor that fetches them.")],
    version: Version = "1",
    ttl_s: Annotated[int, typer.Option(help="Life of a value, in seconds.", min=1, max=86_400)] = 900,
    strategy: Annotated[str, typer.Option(help="hot_top_n, full_snapshot or sampled.")] = "hot_top_n",
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A time at which known keys will be asked for: their values lie in Redis before."""
    from schemas import BrokenConfiguration

    if strategy not in ("hot_top_n", "full_snapshot", "sampled"):
        raise BrokenConfiguration(f"--strategy {strategy}: it is one of hot_top_n, full_snapshot, sampled")
    tree = _tree(config, bootstrap)
    names = tuple(line.strip() for line in text_of(keys).splitlines() if line.strip())
    change = change_of(
        "event",
        name,
        scope,
        tree.redis.pool_key,
        version,
        at,
        keys=names,
        loader=loader,
        ttl_ms=ttl_s * 1000,
        strategy=strategy,
    )
    typer.echo(tell(tree.kafka, change, withdraw))


def _tree(config: Path | None, bootstrap: str | None) -> Tree:
    from stoker.config import read

    tree = read(config)
    if bootstrap is None:
        return tree
    return tree.model_copy(update={"kafka": tree.kafka.model_copy(update={"bootstrap": bootstrap})})
