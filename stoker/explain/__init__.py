"""Why a command was sent, told from what the topics hold: `records` reads them, `findings` picks what belongs to the
command, `story` says it as a person would.
"""
