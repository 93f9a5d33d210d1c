"""The demo: a small fabric of real processes, real load, a real kill, figures measured as it runs.

stage.py      the processes and their endpoints
worker.py     the program that demo workers run
requests.py   two federated brokers; one site overloaded, one worker killed
ledger.py     what the journals say happened
summary.py    the screen
"""
