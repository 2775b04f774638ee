from remuda.stdsteps.engine.pull_progress import PullProgress

MEGABYTE = 1 << 20


def downloading(layer: str, current: int, total: int) -> dict[str, object]:
    return {"status": "Downloading", "id": layer, "progressDetail": {"current": current, "total": total}}


def test_layers_and_bytes_are_summed_up() -> None:
    progress = PullProgress()
    shown = []
    for message in (
        {"status": "Pulling from library/ruby", "id": "3.1"},
        {"status": "Pulling fs layer", "id": "a", "progressDetail": {}},
        {"status": "Already exists", "id": "b"},
        downloading("a", 2 * MEGABYTE, 8 * MEGABYTE),
        downloading("a", 4 * MEGABYTE, 8 * MEGABYTE),
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 8 * MEGABYTE}},
        {"status": "Pull complete", "id": "a", "progressDetail": {}},
        {"status": "Digest: sha256:1"},
    ):
        progress.add(message)
        shown.append(str(progress))
    assert shown == [
        "0 of 0 layers",
        "0 of 1 layers",
        "1 of 2 layers",
        "1 of 2 layers, 2.0 MiB of 8.0 MiB",
        "1 of 2 layers, 4.0 MiB of 8.0 MiB",
        "1 of 2 layers, 8.0 MiB of 8.0 MiB",
        "2 of 2 layers, 8.0 MiB of 8.0 MiB",
        "2 of 2 layers, 8.0 MiB of 8.0 MiB",
    ]
