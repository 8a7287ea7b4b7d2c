"""One file per command group, each with a `register(app)`.

They import what they need inside of their functions: `stoker --help` must not wait for PyFlink or a model.
"""
