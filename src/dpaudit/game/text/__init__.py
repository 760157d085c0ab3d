"""Findings and results as text: the only place where sentences are written.

``findings`` renders one finding, by the catalogues of sentences in this package:

=================  ==============================================================
``accounting``     steps, rates and noise compared with the accountant's history
``federated``      clients and users of federated training
``noise``          noise: how much was measured, and what is wrong with it
``probes``         sensitivity probes, and paths around the noisy sum
``sanity_checks``  whether the audit could have seen an effect, as designed
``stages``         names of stages and statuses; what would be detected
``custom``         findings of adapters that are not part of this package
=================  ==============================================================

``terms`` defines the words for the unit of privacy, and the format of lists and
numbers. ``results`` renders a result: printed, in the first lines of every format, and
in rows. No other code parses the text.
"""
