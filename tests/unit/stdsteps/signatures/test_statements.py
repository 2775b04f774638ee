import json

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.signatures.statements import PREDICATE, TYPE, read_statement


@pytest.mark.parametrize("key", ["_type", "predicateType"])
def test_the_error_names_the_type_that_differs(key: str) -> None:
    document = {"_type": TYPE, "predicateType": PREDICATE} | {key: "other"}
    with pytest.raises(StepError, match="another type: 'other'"):
        read_statement(json.dumps(document).encode())
