"""The web pages of a cell, for people. Pages are rendered on the server (Jinja2); scripts in `static` keep them live.

A page reads what it shows by calling the cell's own HTTP API inside the process, as the user who is signed in
(`page_api`). So a page can show or do nothing that the API would refuse, and there is no second way into the store. A
button of a page calls the API from the browser, with the session cookie and a CSRF token."""
