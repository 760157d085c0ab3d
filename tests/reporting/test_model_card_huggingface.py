"""A card with an audit's section is a card to Hugging Face's own reader."""

from huggingface_hub import ModelCard

from dpaudit import ApproxDP, Design, OneRun
from dpaudit.bounds import Counts
from dpaudit.game.result import judge
from dpaudit.reporting.model_card import model_card_section


def test_a_card_keeps_the_section_and_its_metadata():
    design = Design(
        canaries=1000,
        rules=OneRun(guesses=100),
        claim=ApproxDP(epsilon=2.0, delta=1e-5),
    )
    counts = Counts(canaries=1000, guesses=100, correct=70)
    section = model_card_section(judge(counts, design=design, commitment=None))
    head = "---\nlicense: apache-2.0\ntags:\n- differential-privacy\n---\n"
    card = ModelCard(f"{head}\n# A model\n\n{section}")
    assert card.data.to_dict() == {
        "license": "apache-2.0",
        "tags": ["differential-privacy"],
    }
    assert section in card.text
    assert section in str(ModelCard(str(card)))
