"""Results that outlive the workers that computed them."""
