"""What is wrong with one row."""


class RowError(ValueError):
    """A row that cannot be used.

    Args:
        row: Its number, counted from 0; shown, it is counted from 1.
        complaint: What is wrong and what helps, as it goes on after `row 7`.
    """

    def __init__(self, row: int, complaint: str):
        super().__init__(f"row {row + 1:,} {complaint}")
        self.row = row
        self.complaint = complaint

    def moved(self, rows: int) -> "RowError":
        """Say the same of a row that so many others stand before."""
        return RowError(self.row + rows, self.complaint)
