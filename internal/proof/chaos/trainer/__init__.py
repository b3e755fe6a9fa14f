"""The trainers of the chaos test.

    __main__.py    one process, from its start to its end
    journal.py     what it was told, and what it writes down
    traps.py       kills at named points
    sums.py        the model: a sum over records
    saving.py      checkpoints, by each of the ways that there are
    reader.py      each stream has a thread and steps for itself
    kinds.py       private and shared models
    server.py      where a shared model lives
    ranks.py       a replicated model: a group that adds up what each step brings
    exact.py       the same over bit_exact datasets
    plain.py       trainers that save nothing: their model is their journal
"""
