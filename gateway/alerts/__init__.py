"""Who is told what about a team's money, once: thresholds, forecasts and anomalies, and the letters about them."""
