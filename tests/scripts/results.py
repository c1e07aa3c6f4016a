"""What a script printed and how it ended."""


def refused(result, *facts: str) -> None:
    """In one sentence."""
    assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stdout + result.stderr
    assert all(fact in result.stderr for fact in facts), result.stderr


def set_variables(result) -> dict[str, str]:
    assert result.returncode == 0, result.stderr
    return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
