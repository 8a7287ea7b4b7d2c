"""The operators of the jobs: each decodes, calls one decision object of `analytics`, and encodes.

Settings reach them as JSON through their constructors, because a TaskManager sees neither the client's globals nor its
arguments; heavy imports happen in `open`.
"""
