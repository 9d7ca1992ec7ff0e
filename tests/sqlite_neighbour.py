"""Another process that uses a file of SQLite's for a moment, as any program on the machine may."""

import subprocess
import sys

_USE = """
import sqlite3, sys

connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
connection.close()
"""


def keeps_its_journal(path):
    """Return whether a journal stays when another process has opened and closed the file.

    Whoever closes last takes it away. If a process lost the locks of its connections, the other
    takes itself for the last, and what they write from then on is in a file that nobody finds.
    """
    journal = path.with_name(f"{path.name}-wal")
    assert journal.exists()
    subprocess.run([sys.executable, "-c", _USE, str(path)], check=True)
    return journal.exists()
