"""The cell's jobs in motion, as one: handing out, what runners say, what people want, what time brings, and why.

Nothing is decided here. `motion` is what the parts share, and says how a crash is survived; `claims`, `holders`,
`orders`, `sweeps` and `explanations` are the parts. The HTTP edge and `remuda.cell.service` use it as a whole.
"""

from remuda.cell.claims import Claims
from remuda.cell.explanations import Explanations
from remuda.cell.holders import Holders
from remuda.cell.orders import Orders
from remuda.cell.sweeps import Sweeps


class Dispatch(Claims, Holders, Orders, Sweeps, Explanations):
    """The cell's jobs in motion."""
