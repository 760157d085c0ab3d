"""The paper's algorithms and common mechanisms, each with its exact privacy loss."""
