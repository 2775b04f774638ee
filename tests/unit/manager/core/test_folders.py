"""Two jobs never work in the same folder of a machine, even if one of them was recovered late."""

from remuda.manager.core.folders import Folders
from remuda.manager.core.slots import Slot, Slots


def test_a_new_job_leaves_its_folder_to_a_recovered_job() -> None:
    slots, folders = Slots(concurrent=9, limits={}), Folders()
    new = slots.reserve("r")
    assert new == Slot("r", 0)
    folders.assign("new", new, new.number)
    folders.assign("recovered", slots.adopt(Slot("r", 0)), 0)
    assert folders.settle("new", lambda _: True) == 1
    assert folders.settle("new", lambda _: True) == 1
    # Each gives back the number of its own folder.
    assert (folders.let_go("recovered"), folders.let_go("new")) == (Slot("r", 0), Slot("r", 1))


def test_a_new_job_on_another_machine_keeps_its_folder() -> None:
    folders = Folders()
    folders.assign("new", Slot("r", 0), 0)
    folders.assign("recovered", Slot("r", 1), 0)
    assert folders.settle("new", lambda _: False) == 0
    assert (folders.let_go("recovered"), folders.let_go("new")) == (Slot("r", 1), Slot("r", 0))


def test_a_new_job_skips_the_folders_of_all_recovered_jobs() -> None:
    folders = Folders()
    folders.assign("new", Slot("r", 0), 0)
    folders.assign("recovered", Slot("r", 1), 0)
    folders.assign("also recovered", Slot("r", 2), 1)
    folders.assign("of another runner", Slot("s", 3), 2)
    assert folders.settle("new", lambda _: True) == 2
    assert folders.let_go("recovered").number == 0
    assert folders.let_go("also recovered").number == 1


def test_a_waiting_job_gets_the_folder_of_its_slot() -> None:
    folders = Folders()
    folders.assign("runs", Slot("r", 0), 0)
    folders.assign("waits", Slot("r", 1), 0)
    assert folders.settle("waits", lambda _: True) == 1
    assert folders.settle("waits", lambda _: True) == 1
