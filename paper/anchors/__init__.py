"""Published accuracies with the tuning paid for: features, rivals, plans that were fixed beforehand, and the page."""
