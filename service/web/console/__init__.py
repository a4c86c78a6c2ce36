"""The operators' pages: rendered here, from the views of the API, steered by the same verbs."""
