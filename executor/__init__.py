"""The small process that applies warm-up commands to engines and to Redis (docs/executor.md, docs/structure.md).

It needs no PyFlink. `service.py` is the order of its life, `entrance.py` a command's way in, `settle.py` its way out.
"""
