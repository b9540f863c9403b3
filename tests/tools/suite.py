"""What a test suite does to a system: files, processes, threads, sockets, semaphores, a database."""

import multiprocessing
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest


def square(number):
    return number * number


class Suite(unittest.TestCase):
    def test_files_are_written_and_renamed(self):
        with open("draft.txt", "w") as file:
            file.write("draft\n" * 1000)
        os.rename("draft.txt", "final.txt")
        os.chmod("final.txt", 0o640)
        os.symlink("final.txt", "link.txt")
        with open("link.txt") as file:
            self.assertEqual(len(file.read()), 6000)

    def test_temporary_files_are_private_and_go_away(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "x")
            with open(path, "wb") as file:
                file.write(b"\0" * (1 << 20))
            self.assertEqual(os.path.getsize(path), 1 << 20)
        self.assertFalse(os.path.exists(directory))

    def test_a_child_runs(self):
        done = subprocess.run([sys.executable, "-c", "import sys; sys.exit(9)"])
        self.assertEqual(done.returncode, 9)
        text = subprocess.check_output("echo one | tr a-z A-Z", shell=True)
        self.assertEqual(text, b"ONE\n")

    def test_a_pool_of_processes_shares_semaphores(self):
        with multiprocessing.Pool(4) as pool:
            self.assertEqual(sum(pool.map(square, range(1000))), 332833500)

    def test_threads_meet(self):
        barrier = threading.Barrier(8)
        threads = [threading.Thread(target=barrier.wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_the_loopback_carries(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()) as client:
                peer, _ = server.accept()
                with peer:
                    client.sendall(b"hello")
                    self.assertEqual(peer.recv(5), b"hello")

    def test_a_database_is_written(self):
        database = sqlite3.connect("data.db")
        with database:
            database.execute("create table t (n integer)")
            database.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        self.assertEqual(database.execute("select sum(n) from t").fetchone(), (499500,))
        database.close()


if __name__ == "__main__":
    unittest.main()
