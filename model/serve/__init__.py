"""An OpenAI-compatible server over our own generator: `openk2 serve`."""
