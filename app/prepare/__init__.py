"""What app/prepare_data.py is made of: where documents come from, how they become ids, where the ids go."""


class PrepareError(Exception):
    """A mistake the user can mend; the text is one sentence that names it and the remedy."""
