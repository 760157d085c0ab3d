"""The guessing game: coins, referee, guessers, transcript, result."""
