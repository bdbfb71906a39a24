"""The select of pgbench's -S for Locust: one row of pgbench_accounts by its key, prepared.

Run by a Locust that has psycopg beside it; pgpaces is not needed. PG* says where the data is.
"""

import os
import random
import time

import psycopg
from locust import User, task

ACCOUNTS = 100_000 * int(os.environ["BENCH_SCALE"])


class Reader(User):
    def on_start(self):
        self.connection = psycopg.connect("", autocommit=True)
        self.cursor = self.connection.cursor()

    @task
    def select(self):
        began = time.perf_counter()
        query = "SELECT abalance FROM pgbench_accounts WHERE aid = %s"
        rows = self.cursor.execute(query, (random.randint(1, ACCOUNTS),), prepare=True).fetchall()
        self.environment.events.request.fire(
            request_type="SQL",
            name="select",
            response_time=1e3 * (time.perf_counter() - began),
            response_length=len(rows),
            exception=None,
        )

    def on_stop(self):
        self.connection.close()
