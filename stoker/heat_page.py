"""The heat of an adapter's modules as a page: the pixels of `lora_heat` with modules and times at their edges (D12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.adapters import Heat

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ROW_PX = 22
TOP_PX = 120


def heat_figure(heat: Heat) -> Figure:
    """A row a module, a column a time, each pixel in the colour of `Heat.rgba`; hovering tells the value."""
    from plotly.graph_objects import Figure, Image

    figure = Figure(
        Image(
            z=[[list(pixel) for pixel in row] for row in heat.rgba()],
            colormodel="rgba256",
            customdata=[list(row) for row in heat.values],
            hovertemplate="%{y}, time %{x}: heat %{customdata:.3f}<extra></extra>",
        )
    )
    figure.update_layout(
        title=f"Heat of modules, from {heat.source}, × alpha / rank, over its greatest value",
        height=TOP_PX + ROW_PX * max(1, len(heat.modules)),
        plot_bgcolor="#e8e8e8",
    )
    figure.update_xaxes(title="time", constrain="domain")
    figure.update_yaxes(tickvals=list(range(len(heat.modules))), ticktext=list(heat.modules))
    return figure


def heat_page(heat: Heat) -> str:
    """The figure as a whole HTML page that needs no network."""
    return str(heat_figure(heat).to_html(include_plotlyjs=True, config={"displayModeBar": False}))
