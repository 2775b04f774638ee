"""The pages, by subject. Each module has `pages = Pages()` and handlers that call the API and render a template."""
