"""The cell's jobs in motion, as one: handing out, what runners say, what people want, what time brings, and why.

Nothing is decided here. `motion` is what the parts share, and says how a crash is survived; `claims`, `holders`,
`orders`, `sweeps` and `explanations` are the parts. The HTTP edge and `remuda.cell.service` use it as a whole.
"""

from remuda.cell.dispatch.explanations import Explanations
from remuda.cell.dispatch.handout import Claims
from remuda.cell.dispatch.runner_calls import Holders
from remuda.cell.dispatch.timeouts import Sweeps
from remuda.cell.dispatch.user_commands import Orders


class Dispatch(Claims, Holders, Orders, Sweeps, Explanations):
    """The cell's jobs in motion."""
