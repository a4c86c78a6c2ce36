"""What the browser is told of the house: it knows nothing of the product but this, and what its pages say."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Scene:
    """Where the console is, who may sign in, what is worth a look there, and the folder that pictures go to.

    `mended` has dead letters and a receiver that takes them now; `hostile` has answered with a script.
    """

    base: str
    admin_key: str
    reader_key: str
    mended: str
    hostile: str
    paused: str
    job: str
    run: str
    pictures: str

    def write(self, path: Path) -> None:
        """Leave it for the browser's process."""
        path.write_text(json.dumps(asdict(self)))
        path.chmod(0o600)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What was left there."""
        return cls(**json.loads(path.read_text()))
