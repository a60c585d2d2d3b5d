"""Where runs are made: in this process, or in processes of their own."""
