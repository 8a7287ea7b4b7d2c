"""The page shows the pixels of the heat, with its modules and values."""

from __future__ import annotations

import json
import re
from typing import Any

from analytics.adapters import lora_heat
from stoker.heat_page import heat_figure, heat_page
from stoker.rules import decide, find


def test_every_pixel_is_the_colour_of_its_heat() -> None:
    heat = lora_heat(8, 16.0, gradients={"q": [[3.0, 4.0], [0.0, 0.0]], "v": [[6.0, 8.0], [0.0, 1.0]]})
    image: Any = heat_figure(heat).data[0]
    assert image.colormodel == "rgba256"
    assert [[tuple(pixel) for pixel in row] for row in image.z] == [
        [(255, 128, 0, 255), (0, 0, 0, 0)],
        [(255, 255, 255, 255), (77, 0, 0, 255)],
    ]
    assert [list(row) for row in image.customdata] == [list(row) for row in heat.values]


def test_the_page_is_whole_and_names_the_modules() -> None:
    page = heat_page(lora_heat(8, 16.0, activity={"q_proj": [1.0], "v_proj": [2.0]}))
    assert "q_proj" in page
    assert "</html>" in page
    assert re.search(r"<script[^>]*\ssrc=", page) is None


def test_the_rule_gives_the_page_when_asked() -> None:
    found: Any = decide("lora_heat", json.dumps({**find("lora_heat").example, "page": True}).encode())
    assert "v_proj" in found["page"]
