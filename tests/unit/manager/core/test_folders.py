"""No two jobs work in the same folder of a machine, though one of them was found late."""

from remuda.manager.core.folders import Folders
from remuda.manager.core.slots import Slot, Slots


def test_a_job_that_begins_leaves_its_folder_to_one_that_was_found_there() -> None:
    slots, folders = Slots(concurrent=9, limits={}), Folders()
    new = slots.reserve("r")
    assert new == Slot("r", 0)
    folders.assign("new", new, new.number)
    folders.assign("found", slots.adopt(Slot("r", 0)), 0)
    assert folders.settle("new", lambda _: True) == 1
    assert folders.settle("new", lambda _: True) == 1
    # Each gives back the number of its own folder.
    assert (folders.let_go("found"), folders.let_go("new")) == (Slot("r", 0), Slot("r", 1))


def test_on_another_machine_it_keeps_it() -> None:
    folders = Folders()
    folders.assign("new", Slot("r", 0), 0)
    folders.assign("found", Slot("r", 1), 0)
    assert folders.settle("new", lambda _: False) == 0
    assert (folders.let_go("found"), folders.let_go("new")) == (Slot("r", 1), Slot("r", 0))


def test_the_number_it_gets_may_be_that_of_another_one_that_was_found() -> None:
    folders = Folders()
    folders.assign("new", Slot("r", 0), 0)
    folders.assign("found", Slot("r", 1), 0)
    folders.assign("also found", Slot("r", 2), 1)
    folders.assign("of another runner", Slot("s", 3), 2)
    assert folders.settle("new", lambda _: True) == 2
    assert folders.let_go("found").number == 0
    assert folders.let_go("also found").number == 1


def test_a_job_that_has_not_begun_goes_where_it_is_counted() -> None:
    folders = Folders()
    folders.assign("runs", Slot("r", 0), 0)
    folders.assign("waits", Slot("r", 1), 0)
    assert folders.settle("waits", lambda _: True) == 1
    assert folders.settle("waits", lambda _: True) == 1
