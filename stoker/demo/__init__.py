"""`stoker demo`: the whole path on this machine, a live table, and a summary that is the truth of that run.

`effect` and `board` are pure: which requests a command could have helped, and what the topics said. `session` starts
and ends the parts, `show` draws.
"""
