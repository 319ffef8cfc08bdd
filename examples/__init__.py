"""Applications that use Tailrace as anybody would."""
