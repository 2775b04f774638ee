import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.signatures.openssl import read_public_key


def test_a_damaged_public_key_is_an_error_of_the_job() -> None:
    with pytest.raises(StepError, match="cannot read the public key") as caught:
        read_public_key("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2Vw\n-----END PUBLIC KEY-----\n")
    assert caught.value.exit_code == 1
