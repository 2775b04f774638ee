import pytest

from remuda.stdsteps.checkout.git_flags import FETCH, SUBMODULE_UPDATE, Options, check_flags
from remuda.stdsteps.common.errors import StepError


@pytest.mark.parametrize(
    ("allowed", "flags"),
    [
        (FETCH, "--prune --tags --force --progress --depth 5 --filter=blob:none --refetch"),
        (FETCH, "-pqj4 -j 4 -qo --upload-pack -o--all --depth --all"),
        (SUBMODULE_UPDATE, "--remote --jobs 4 -j 4 --jobs=4 -N -f --depth 1 --no-single-branch"),
    ],
)
def test_harmless_options_are_allowed(allowed: Options, flags: str) -> None:
    check_flags("NAME", flags.split(), allowed)


@pytest.mark.parametrize(
    ("allowed", "flags"),
    [
        (FETCH, "--upload-pack=x"),
        (FETCH, "--prun"),
        (FETCH, "-qm"),
        (FETCH, "-"),
        (FETCH, "--"),
        (FETCH, "--all"),
        (FETCH, "--stdin"),
        (FETCH, "--quiet=1"),
        (FETCH, "--depth="),
        (FETCH, "--depth"),
        (FETCH, "-qj"),
        (FETCH, "-j4 elsewhere"),
        (FETCH, "-q=x"),
        (SUBMODULE_UPDATE, "-j4"),
        (SUBMODULE_UPDATE, "-Nf"),
        (SUBMODULE_UPDATE, "--merge"),
        (SUBMODULE_UPDATE, "--reference x"),
        (SUBMODULE_UPDATE, "vendor"),
    ],
)
def test_other_options_are_refused_with_the_name_of_the_variable(allowed: Options, flags: str) -> None:
    with pytest.raises(StepError, match=r"^NAME: '"):
        check_flags("NAME", flags.split(), allowed)
