"""The switch that aggregates in software: who may use it, what it tells of itself, and the worker's way in.

``docs/switch.md`` is for whoever runs one; ``docs/adr/0009-the-path-through-a-switch.md`` says how the parts fit:

==============  ====================================================================================================
module          what
==============  ====================================================================================================
``lines``       what the two ends of a control connection say to each other, and how they prove it
``admission``   who gets in: gathering the workers of a job, quotas, incarnations; no I/O
``control``     the control connections, over TCP
``engines``     what runs the packets: ``native_engine`` in C++, or ``p4_engine``, a P4 program in the interpreter
``metrics``     what the switch tells of itself: Prometheus, and ``status`` for people
``join``        the worker's end; ``probe`` finds how large a datagram the path takes
``command``     ``collectives switch``
``child``       ``collectives.Switch``: all this in a child process
==============  ====================================================================================================

Nothing is imported here: a rank that only joins does not load the server.
"""
