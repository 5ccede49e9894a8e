"""What the page is made of: inputs, views, charts, texts. Draws what `calc` computes."""
