"""The verbs: accept, discover, dispatch, send, control. They own the transactions."""
