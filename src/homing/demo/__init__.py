"""The demo: a small fabric of real processes, real load, a real kill, figures measured as it runs.

stage.py      two brokers and their workers, as processes
worker.py     the program that demo workers run
requests.py   two federated sites; one overloaded, one worker killed
push_stage.py matcher, dispatcher and connector, as processes
traffic.py    a seeded city to publish from and to watch
pushes.py     a thousand subscribers; the matcher killed
ledger.py     what the journals say happened
tables.py     the same from Spark: tables, ledger, service levels, a plan, a report
summary.py    the screen
keep.py       a fabric that stays up afterwards, with its page
"""
