"""What Wakeful is measured beside: other products as their documentation sets them up, and the load for them."""
