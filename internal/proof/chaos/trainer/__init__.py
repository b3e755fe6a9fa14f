"""The trainers of the chaos test.

    __main__.py    one process, from its start to its end
    ending.py      how a process ends
    journal.py     the settings of a process, and what it writes down
    traps.py       kills at named points
    sums.py        the model: a sum over records
    saving.py      checkpoints, saved in each of the possible ways
    reader.py      private and shared models: each stream has a thread and steps for itself
    kinds.py       private and shared models, and trainers that save nothing
    server.py      the server that holds a shared model
    ranks.py       a replicated model: a group that adds up the batches of each step
    rounds.py      the same in rounds
    exact.py       the same over bit_exact datasets
    pusher.py      pushes records; not a trainer
"""
