"""How things look: lossless JSON, differences, times, charts. Pure; no request and no database."""
