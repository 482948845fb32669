from pathlib import Path

from tests.support.grounds.ground import Ground
from tests.support.moving_files import MovingFiles, file_events
from tests.support.stack import Stack, eventually


class Files(Ground):
    """A directory: files arrive, slowly and at once, are replaced, truncated, renamed and removed."""

    agent = "files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place = folder / "in"
        self.place.mkdir()
        self.files = MovingFiles(self.place, 200)

    @property
    def env(self) -> dict[str, str]:
        return {"GROUND_FILES": str(self.place), "WAKEFUL_FILE_ROOTS": str(self.place)}

    def move(self, stack: Stack) -> None:
        self.files.arrive()
        eventually(lambda: self.is_complete(stack))
        self.files.move()

    def is_complete(self, stack: Stack) -> bool:
        return not self.files.missing(file_events(stack.query))

    def check(self, stack: Stack) -> None:
        assert file_events(stack.query) == self.files.expected
        assert len(self.results(stack)) == sum(self.files.expected.values())
