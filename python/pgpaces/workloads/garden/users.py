"""Application users in Python: choose an entry of each listing at random, and record a plant."""

import psycopg

from pgpaces import task, user


@user(pause="1s")
def gardener(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@task(queries=3)
def insert_plant(connection, rng, number, loop, scale: int):
    garden = [rng.randint(1, 100 * scale)]
    plantings = connection.execute("SELECT * FROM ui.get_plantings_listing(%s)", garden)
    planting = rng.choice(plantings.fetchall())
    destinations = connection.execute("SELECT * FROM ui.get_plant_destinations(%s)", garden)
    plant = [planting[0], rng.choice(destinations.fetchall())[0], "2017-05-01", "This is a note"]
    connection.execute("SELECT * FROM ui.insert_plant(%s, %s, %s, %s, 'Text field')", plant)
    if loop % 100 == 0:
        print(f"user {number} has recorded {loop} plants")
