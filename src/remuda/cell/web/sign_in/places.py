"""The sign-in form, and the addresses to which it returns. In its own module, because all ways to sign in show it."""

from urllib.parse import unquote, urlsplit

from starlette.responses import Response

from remuda.cell.web.visit import Visit


def show_form(visit: Visit, return_to: str, *, problem: str = "", status: int = 200) -> Response:
    """The sign-in form. `problem`: why the last attempt failed, and what to do."""
    provider = visit.sign_in.provider
    name = provider.settings.name if provider else ""
    return visit.render("sign_in.html", return_to=return_to, problem=problem, provider=name, status=status)


def own_address(address: str) -> str:
    """`address` if it is a path of this cell, else `/`, so that nobody can use the form to redirect elsewhere."""
    # Browsers take \ for /, and leave out tabs and line breaks.
    is_plain = address.isprintable() and "\\" not in address
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    # Decoded, too: what answers the address may redirect to its decoded form.
    is_own = unquote(address).startswith("/") and not unquote(address).startswith(("//", "/\\"))
    is_own = is_own and address.startswith("/") and not parts.netloc and not parts.scheme
    return address if is_own and is_plain else "/"
