"""Co-KG, collaborative knowledge gradient on a Wasserstein barycenter [Zhan2025]."""
