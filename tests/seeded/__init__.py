"""Known bugs of programs like this one, planted one by one into a copy of the code to see which check finds each."""
