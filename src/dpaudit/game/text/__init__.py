"""Findings and results as text, made last: the one place where sentences are written.

``findings`` renders one finding, by the catalogues of sentences beside it:

=================  ==============================================================
``accounting``     steps, rates and noise beside the accountant's history
``federated``      clients and users of federated training
``noise``          noise: how much was measured, and what is wrong with it
``probes``         probes of a step, and what leaves it beside the noisy sum
``sanity_checks``  whether there was anything to see, in the run that was designed
``stages``         names of stages and statuses; what would be detected
``custom``         what adapters say that are not part of this package
=================  ==============================================================

``terms`` holds what a record is called, and how lists and numbers are written.
``results`` renders a result: printed, in the first lines of every format, and in rows.
Nothing outside this package reads what it returns.
"""
