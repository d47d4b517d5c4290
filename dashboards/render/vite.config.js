import react from '@vitejs/plugin-react';

export default {
  plugins: [react()],
  base: './',
  define: { 'process.env': {}, global: 'globalThis' },
  build: { chunkSizeWarningLimit: 20000 },
};
