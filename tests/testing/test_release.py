"""A release is shown first, then committed and tagged; what does not fit together is refused."""

import shutil
import subprocess
from pathlib import Path

import pytest

from headgate_studies.testing.release import PLACES, ReleaseError, changed_files, current_version, main, release

ROOT = Path(__file__).parents[2]
DAY = "2026-01-31"


def git(root: Path, *arguments: str) -> str:
    known = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(["git", *known, *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in {file for file, _ in PLACES} | {"CHANGELOG.md"}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test@localhost")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "as it is")
    return tmp_path


def test_the_version_is_the_same_everywhere() -> None:
    from headgate import __version__

    assert current_version(ROOT) == __version__


def test_a_release_is_shown_and_changes_nothing(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    assert main(["9.8.7"]) == 0
    said = capsys.readouterr().out
    assert said.count("9.8.7") == len(PLACES) + 1
    assert "Nothing was changed" in said
    assert git(copy, "status", "--porcelain") == ""


def test_a_release_is_committed_and_tagged_and_cannot_be_made_twice(copy: Path) -> None:
    (copy / "stray.txt").write_text("")
    with pytest.raises(ReleaseError, match="not committed"):
        release(copy, "9.8.7", do=True, day=DAY)
    (copy / "stray.txt").unlink()
    assert "v9.8.7" in release(copy, "9.8.7", do=True, day=DAY)
    assert current_version(copy) == "9.8.7"
    assert f"## [Unreleased]\n\n## [9.8.7] - {DAY}\n" in (copy / "CHANGELOG.md").read_text()
    assert git(copy, "tag", "--list").split() == ["v9.8.7"]
    assert git(copy, "log", "-1", "--format=%s").strip() == "Release 9.8.7"
    with pytest.raises(ReleaseError, match="does not follow"):
        release(copy, "9.8.7", do=True, day=DAY)
    with pytest.raises(ReleaseError, match="nothing stands under"):
        release(copy, "9.8.8", do=False, day=DAY)


def test_what_is_no_version_or_not_the_same_everywhere_is_refused(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    assert main(["1.2"]) == 2
    assert "three numbers" in capsys.readouterr().err
    path = copy / "src" / "headgate" / "__init__.py"
    path.write_text(path.read_text().replace("__version__ =", "__version__ = version ="))
    with pytest.raises(ReleaseError, match="0 versions"):
        changed_files(copy, "9.8.7", DAY)
